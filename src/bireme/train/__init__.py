"""What a training script touches: ``Trainer``, ``Module``, splitting, metrics and callbacks."""
