"""Office files, electronic books and mails → texts with positions, in the process that `program` is.

What a format shows is read: hidden sheets and slides, deleted text and field codes are left out.
"""
