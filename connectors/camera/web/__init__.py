"""HTTP sources other than live streams: recordings and single pictures; and logins."""
