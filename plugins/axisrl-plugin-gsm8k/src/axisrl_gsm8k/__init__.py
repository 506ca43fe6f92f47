"""Grade-school mathematics for axisrl. The components are named in :mod:`axisrl_gsm8k.plugin`."""
