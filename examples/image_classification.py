"""Train VGG-11 or ResNet-18 on CIFAR-10, on any number of devices.

    python examples/image_classification.py --data-dir DIR --gpus 0,1
    python examples/image_classification.py --benchmark 1 --network vgg11 --num-epochs 1

DIR holds CIFAR-10's binary or Python version, unpacked.
"""

import options
import training
from bireme.data import load_cifar10
from bireme.errors import ConfigError


def main() -> None:
    parser = options.parser(__doc__)
    parser.add_argument("--network", choices=("vgg11", "resnet18"), default="resnet18")
    training.add_options(parser, num_epochs=60, lr_step_epochs=[30, 45])
    args = parser.parse_args()
    if args.benchmark:
        train, test = training.synthetic(args, (3, 32, 32))
    elif args.data_dir is not None:
        train, test = load_cifar10(args.data_dir)
    else:
        raise ConfigError("name CIFAR-10's directory with --data-dir, or pass --benchmark 1")
    training.fit(args, train, test)


if __name__ == "__main__":
    options.run(main)
