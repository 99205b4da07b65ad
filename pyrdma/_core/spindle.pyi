presets: list[str]
qualities: list[str]
