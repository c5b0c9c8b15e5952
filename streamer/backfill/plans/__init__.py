"""What a backfill has to do: the files of its inputs, their pieces, and which of them are done."""
