"""What HTTP servers send besides streams of live cameras."""
