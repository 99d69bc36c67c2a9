"""A new user's first hour, from the wheel, as one story: at each stage every view is read, and they must agree."""
