"""Configuration: one frozen dataclass per component, merged from files and the command line, every
value's origin kept."""
