"""TFLite files read with numpy alone: what is in them, and the oldest runtime that runs them."""
