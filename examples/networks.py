"""The networks that the examples train, for images of any number of channels.

VGG-11 and ResNet-18 are the forms for small images (32 by 32), as commonly trained on CIFAR-10.
"""

from collections.abc import Callable

from torch import Tensor, nn

__all__ = ("BUILDERS", "lenet", "mlp", "resnet18", "vgg11")

Shape = tuple[int, int, int]
"""Channels, height, width."""


def mlp(shape: Shape, num_classes: int) -> nn.Module:
    """Two hidden layers of 128 and 64 units."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * width, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, num_classes),
    )


def lenet(shape: Shape, num_classes: int) -> nn.Module:
    """Two convolutions of 5 by 5, each with a pooling, and a hidden layer of 500 units.

    Source:
        LeCun et al., "Gradient-Based Learning Applied to Document Recognition", Proc. IEEE 86
        (1998), in the wider form that Caffe and MXNet made common. Images smaller than 28
        pixels are padded so that something is left of them.
    """
    channels, height, width = shape
    padding = 0 if min(height, width) >= 28 else 2
    sides = [(((side + 2 * padding - 4) // 2) + 2 * padding - 4) // 2 for side in (height, width)]
    return nn.Sequential(
        nn.Conv2d(channels, 20, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(50 * sides[0] * sides[1], 500),
        nn.ReLU(),
        nn.Linear(500, num_classes),
    )


def vgg11(shape: Shape, num_classes: int) -> nn.Module:
    """Eight convolutions of 3 by 3 in five stages, with batch normalisation.

    Source:
        Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
        Recognition", ICLR 2015, configuration A; one linear layer on top for small images.
    """
    layers: list[nn.Module] = []
    channels = shape[0]
    for stage in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for width in stage:
            layers += [*_convolution(channels, width), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2, ceil_mode=True))
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, num_classes)
    )


def resnet18(shape: Shape, num_classes: int) -> nn.Module:
    """Eight residual blocks in four stages.

    Source:
        He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, with the first
        convolution of 3 by 3 and no pooling after it, as in its section on CIFAR-10.
    """
    layers: list[nn.Module] = [*_convolution(shape[0], 64), nn.ReLU()]
    channels = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_Residual(channels, width, stride), _Residual(width, width, 1)]
        channels = width
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, num_classes)
    )


class _Residual(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(channels, width, stride=stride), nn.ReLU(), *_convolution(width, width)
        )
        same = channels == width and stride == 1
        self.skip = (
            nn.Identity()
            if same
            else nn.Sequential(*_convolution(channels, width, size=1, stride=stride))
        )

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.relu(self.body(images) + self.skip(images))


def _convolution(channels: int, width: int, *, size: int = 3, stride: int = 1) -> list[nn.Module]:
    padding = size // 2
    convolution = nn.Conv2d(channels, width, size, stride=stride, padding=padding, bias=False)
    return [convolution, nn.BatchNorm2d(width)]


BUILDERS: dict[str, Callable[[Shape, int], nn.Module]] = {
    "lenet": lenet,
    "mlp": mlp,
    "resnet18": resnet18,
    "vgg11": vgg11,
}
