presets: list[str]
