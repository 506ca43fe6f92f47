"""A stand-in for SGLang on a CPU: the parts the plugin calls, with SGLang's signatures."""

__version__ = "0.5.16"
