"""Every number of the rules that find actions, in one place.

They were set by hand, so that matches have about as many actions of each kind as simbaa's, and gaps between them as in
its training matches: `python -m tools.simulate OUT --matches 0 --compare SIMBAA` shows both. Steps are 40 ms; shares
are of half the pitch's length.
"""

# Contacts
SAME_SPELL = 12  # steps: a player who has the ball again after so few has dribbled, not lost it
TOUCH_CHANGE = 2.5  # m/s that a touch changes the ball's velocity by, at least …
TOUCH_SHARE = 0.25  # … and this share of the speed it had, so that a slow bounce or drag is no touch
TOUCH_REACH = 1.3  # m from the ball to the nearest player, at most
TOUCH_APART = 5  # steps between two touches
NEAR_POSTS = 0.99  # share: beyond, the posts and the net touch the ball too

# What a contact is
DRIVE_STEPS = 15  # a spell so long …
DRIVE_METRES = 3.0  # … that ends so far from where it began is a drive …
DRIVE_DELAY = 3  # … seen so many steps after the ball is taken
TACKLE_GAP = 2  # steps that the ball may be free between the one who loses it and the one who wins it
TACKLE_HOLD = 8  # steps that the winner keeps it for
TACKLES_APART = 10  # steps, since the ball may change sides several times in one duel
HEADER_HEIGHT = 1.2  # m: above, a touch is one of the head
BLOCK_STEPS = 20  # after an opponent's kick, a touch is a block

# What a kick is
KICK_SPEED = 4.0  # m/s: slower, and the ball was left, not kicked
TOUCH_KICK_SPEED = 8.0  # m/s: as fast, and a touch is a kick that an opponent may block
TAKEN_GAP = 2  # steps: if somebody else has it so soon, it was taken
SHOT_FROM = 0.6  # share of the way to the goal
SHOT_SPEED = 18.0  # m/s
SHOT_FORWARD = 3.0  # m/s towards the goal line
SHOT_WIDE = 8.0  # m beside the goal's middle that it may be headed for
CROSS_FROM = 0.62  # share of the way to the goal
CROSS_WING = 16.0  # m beside the pitch's middle line
CROSS_INWARD = 0.7  # of the way from that line that is left where it comes down, at most
CROSS_TO = 0.6  # share of the way to the goal where it comes down, at least
HIGH_PASS_HEIGHT = 1.7  # m
