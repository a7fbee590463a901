"""Models behind one protocol: `base` is the contract, one module an engine, `client` what stages use."""
