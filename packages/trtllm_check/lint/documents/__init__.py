"""What a text holds beside commands: config.pbtxt, serving.properties, requests."""
