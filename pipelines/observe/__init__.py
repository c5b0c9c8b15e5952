"""What a running pipeline tells: metrics of steps, profiles and traces."""
