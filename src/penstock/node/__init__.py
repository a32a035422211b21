"""What ties engine, consensus and storage together on an event loop: the commit path, time, waiting, snapshots."""
