"""What the connections of a load speak: one module per protocol, and the shapes that all protocols share."""
