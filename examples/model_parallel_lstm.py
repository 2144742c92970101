"""Train a language model whose layers live on different devices.

    python examples/model_parallel_lstm.py --num-cpus 2
    python examples/model_parallel_lstm.py --gpus 0,1 --num-layers 4 --num-hidden 1024

The model reads text one character at a time: an embedding, a stack of LSTM layers, and a head
that guesses the next character. The layers are dealt to the contexts in order, and only the
activations between two neighbours travel. A sequence is cut into chunks along time, so that on
GPUs, which work while Python already issues the next call, the first context computes chunk 1
while the second computes chunk 0.

The text is this project's licence unless --text names another. Perplexity is the number of
characters among which the model is still undecided, on average; guessing blindly it is about
the size of the alphabet.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import options
from bireme.errors import ConfigError
from bireme.types import Context

LICENCE = Path(__file__).resolve().parent.parent / "LICENSE"
State = tuple[Tensor, Tensor] | None


class StackedLSTM(nn.Module):
    """Maps characters (batch, time) to scores (batch, time, alphabet), layer by layer."""

    def __init__(self, alphabet: int, width: int, layers: int, contexts: list[Context]) -> None:
        super().__init__()
        if len(contexts) > layers:
            raise ConfigError(
                f"{len(contexts)} contexts for {layers} layers; name at most one per layer"
            )
        places = [contexts[layer * len(contexts) // layers] for layer in range(layers)]
        self.devices = [torch.device(place.torch_name) for place in places]
        self.embedding = nn.Embedding(alphabet, width).to(self.devices[0])
        self.layers = nn.ModuleList(
            nn.LSTM(width, width, batch_first=True).to(device) for device in self.devices
        )
        self.head = nn.Linear(width, alphabet).to(self.devices[-1])
        self.plan = ", ".join(f"lstm{layer} on {place}" for layer, place in enumerate(places))

    def forward(self, text: Tensor, states: list[State], chunks: int) -> tuple[Tensor, list[State]]:
        states, scores = list(states), []
        for chunk in text.to(self.devices[0]).chunk(chunks, dim=1):
            signal = self.embedding(chunk)
            for number, (layer, device) in enumerate(zip(self.layers, self.devices, strict=True)):
                signal = signal.to(device, non_blocking=True)
                signal, states[number] = layer(signal, states[number])
            scores.append(self.head(signal))
        return torch.cat(scores, dim=1), states


def read_text(path: Path, batch: int) -> tuple[Tensor, Tensor, list[str]]:
    """Return training text (batch, time), held-out text (1, time) and the alphabet."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read --text {path}: {error}") from error
    alphabet = sorted(set(text))
    code_of = {letter: code for code, letter in enumerate(alphabet)}
    codes = torch.tensor([code_of[letter] for letter in text])
    rows = len(codes) * 9 // 10 // batch
    if rows < 2:
        raise ConfigError(f"{path}: {len(codes)} characters are too few for batches of {batch}")
    return codes[: rows * batch].view(batch, rows), codes[rows * batch :][None], alphabet


def perplexity(
    model: StackedLSTM,
    text: Tensor,
    args: argparse.Namespace,
    learn: Callable[[Tensor], None] | None = None,
) -> float:
    """Return the perplexity of ``text``; ``learn`` is called with the loss of each sequence."""
    total = 0.0
    states: list[State] = [None] * args.num_layers
    for start in range(0, text.shape[1] - 1, args.seq_len):
        piece = text[:, start : start + args.seq_len + 1]
        scores, states = model(piece[:, :-1], states, args.chunks)
        target = piece[:, 1:].to(scores.device)
        loss = functional.cross_entropy(scores.flatten(0, 1), target.flatten())
        if learn is not None:
            learn(loss)
        states = [(hidden.detach(), cell.detach()) for hidden, cell in states]
        total += loss.item() * (piece.shape[1] - 1)
    return math.exp(total / (text.shape[1] - 1))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.parser(__doc__)
    options.add_contexts(parser)
    parser.add_argument("--num-layers", type=options.positive_int, default=2)
    parser.add_argument("--num-hidden", type=options.positive_int, default=128)
    parser.add_argument("--seq-len", type=options.positive_int, default=32, help="in characters")
    parser.add_argument("--chunks", type=options.positive_int, default=4, help="per sequence")
    parser.add_argument("--batch-size", type=options.positive_int, default=16)
    parser.add_argument("--num-epochs", type=options.positive_int, default=10)
    parser.add_argument("--lr", type=options.positive_float, default=5e-3)
    parser.add_argument("--clip", type=options.positive_float, default=1.0, help="gradient norm")
    parser.add_argument("--text", type=Path, default=LICENCE, help="a UTF-8 file")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(argv)
    contexts = options.contexts(args)
    torch.manual_seed(args.seed)
    train, held_out, alphabet = read_text(args.text, args.batch_size)
    model = StackedLSTM(len(alphabet), args.num_hidden, args.num_layers, contexts)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    print(f"{len(alphabet)} different characters; {model.plan}")

    def learn(loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()

    with torch.no_grad():
        print(f"Start: held-out perplexity {perplexity(model, held_out, args):.2f}")
    for epoch in range(args.num_epochs):
        trained = perplexity(model, train, args, learn)
        with torch.no_grad():
            tested = perplexity(model, held_out, args)
        print(f"Epoch {epoch}: train perplexity {trained:.2f}, held-out perplexity {tested:.2f}")


if __name__ == "__main__":
    options.run(main)
