"""How processes of a job talk: the job's secret, one framing, plain values."""
