"""Files in object stores and on the Hugging Face Hub."""
