"""Models behind one protocol: `base` is the contract, one module an engine, `asking` what stages use."""
