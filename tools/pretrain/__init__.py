"""Parts of ``tools/pretrain_nano.py``: vocabulary, data, objective, training loop, evaluation."""
