def test_training_goes_on_from_the_last_commit_in_a_new_job(hvd):
    state = hvd.elastic.TorchState(batch=0)
    runs, resets = [], []
    state.register_reset_callbacks([lambda: resets.append(hvd.is_initialized())])

    @hvd.elastic.run
    def train(state, until, *, step=1):
        """Train."""
        runs.append(state.batch)
        while state.batch < until:
            state.batch += step
            if state.batch == 3:
                state.commit()
            if state.batch == 5 and len(runs) == 1:
                raise hvd.HorovodInternalError("a peer is gone")
        return "done"

    assert train.__doc__ == "Train."
    assert train(state, 7) == "done"
    assert runs == [0, 3]
    assert resets == [True]
    assert state.batch == 7
