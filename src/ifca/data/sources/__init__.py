"""Data of the user's own: folders, tables, LEAF, Hugging Face."""
