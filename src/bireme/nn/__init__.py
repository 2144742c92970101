"""Layers for models that are trained on parameter servers."""

from bireme.nn.bag import ShardedEmbeddingBag as ShardedEmbeddingBag
from bireme.nn.embedding import ShardedEmbedding as ShardedEmbedding

__all__ = ("ShardedEmbedding", "ShardedEmbeddingBag")
