"""How well tracks keep their objects: TRACK beside the package trackers, on scenes whose truth is known."""
