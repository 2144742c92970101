"""Sums or means over bags of rows, as ``torch.nn.EmbeddingBag``."""

from typing import Any

import torch
from torch.nn import functional

from bireme.errors import ConfigError
from bireme.nn.embedding import ShardedEmbedding

__all__ = ("ShardedEmbeddingBag",)


class ShardedEmbeddingBag(ShardedEmbedding):
    """Looks up rows of a table on the servers and adds up those of each bag.

    Args:
        num_embeddings: As for :class:`ShardedEmbedding`, and so all the others.
        embedding_dim: Elements of a row.
        mode: ``"sum"`` or ``"mean"``.
        padding_idx: An id that does not count in its bag.
        options: Keyword arguments of :class:`ShardedEmbedding`.

    Raises:
        ConfigError: ``mode`` is something else.

    Example:
        >>> layer = ShardedEmbeddingBag(None, 2, mode="mean", init="zeros")
        >>> layer(torch.tensor([3, 4, 5]), torch.tensor([0, 2])).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        >>> layer.close()
    """

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        mode: str = "mean",
        padding_idx: int | None = None,
        **options: Any,
    ) -> None:
        if mode not in ("sum", "mean"):
            raise ConfigError(f"mode must be 'sum' or 'mean', got {mode!r:.40}")
        super().__init__(num_embeddings, embedding_dim, padding_idx, **options)
        self.mode = mode

    def forward(
        self,
        ids: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return one vector for each bag.

        Args:
            ids: Of shape ``(bags, size)``; or one-dimensional, with ``offsets``.
            offsets: Where each bag begins.
            per_sample_weights: A factor for each id, in mode ``"sum"`` only.

        Raises:
            ConfigError: As for :class:`ShardedEmbedding`, or the shapes do not fit.
        """
        if ids.dim() not in (1, 2) or (ids.dim() == 2) == (offsets is not None):
            raise ConfigError(
                "ids are two-dimensional without offsets, or one-dimensional with offsets; got "
                f"shape {tuple(ids.shape)} {'without' if offsets is None else 'with'} offsets"
            )
        rows, places, padding = self._rows(ids)
        try:
            return functional.embedding_bag(
                places,
                rows,
                offsets,
                mode=self.mode,
                per_sample_weights=per_sample_weights,
                padding_idx=padding,
            )
        except (ValueError, NotImplementedError, RuntimeError) as error:
            raise ConfigError(f"bags cannot be like this: {error}") from error
