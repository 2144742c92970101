"""The shells of a job's roles: sockets, threads and tensors around the state machines of `core`."""
