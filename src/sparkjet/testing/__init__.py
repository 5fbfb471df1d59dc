"""What sparkjet is tested with, for users too."""
