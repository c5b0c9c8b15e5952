"""`konduit`: the bodies of Konduit Serving over HTTP, told apart by `content-type` and `accept`."""
