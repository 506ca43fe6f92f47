"""axisrl-plugin-local: engine, trainer and small models on torch and transformers, one device."""
