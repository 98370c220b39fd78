"""
Write many things so that a kill at any moment leaves each written once, or named as unknown.
"""
