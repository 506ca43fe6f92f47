"""Components every installation has: stores, packer, reward, dataset and loggers, as plugin
``core``.

They are built like any plugin's (:mod:`axisrl.builtin.plugin`); nothing else imports them by name.
"""
