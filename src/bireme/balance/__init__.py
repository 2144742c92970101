"""How the samples of a global batch are shared among unequal workers. Pure: numbers in and out."""
