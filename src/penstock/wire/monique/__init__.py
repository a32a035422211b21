"""The protocols of MoniQue as sans-IO codecs.

    tags      `type:spec:id:pid:creator`, topics, ids
    bodies    the MessagePack map behind a tag; monitoring, kill and error messages
    gateway   the frames of the WebSocket gateway, both sides
    zmtp      the connection between the controller and a worker: ZMTP 3, PUSH and PULL

A message travels as two frames, a tag and a body. The tag rules: a body may be encrypted, and is then passed on as it
came. Two dialects are in use (see tags.Dialect); both are read everywhere, and each side is answered in its own.
"""
