"""`sparkplug`: payloads of Sparkplug B, the messages of industrial edge nodes (Sparkplug 3.0)."""
