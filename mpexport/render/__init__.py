"""Results for people and for machines. Only `layout` needs rich, and only when it writes."""
