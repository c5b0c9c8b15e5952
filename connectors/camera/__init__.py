"""Cameras and videos as records, and FRAME_CAPTURE and VIDEO_CAPTURE. Importing this loads no PyAV."""
