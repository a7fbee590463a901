"""curate: raw multi-turn chat logs in, audited training sets out."""
