"""
The pages of ``invsvc console``: what the commands show of a store, and what they change in it.

Views have the data and the words of the commands (``store_views``, ``event_views``).  A change is asked for,
shown with the state that it would change, and done once that is confirmed and still so (``confirmations``).
"""
