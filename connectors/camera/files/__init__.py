"""Files of this machine: folders of pictures, and playlists, which name further files."""
