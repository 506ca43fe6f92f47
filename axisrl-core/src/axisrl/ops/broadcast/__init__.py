"""Weights from the ranks of a trainer to any number of receivers, over process groups of torch.

1. Rank 0 of the trainer is the leader (:mod:`axisrl.ops.broadcast.leader`): it listens at one
   address, which is where a weight update says that it can be had. The other ranks are followers
   (:mod:`axisrl.ops.broadcast.follower`). Each of these senders holds a copy of its share of the
   weights in flat buckets, so that the trainer may go on while they are sent.
2. A receiver (:mod:`axisrl.ops.broadcast.receiver`) connects to the leader and asks for an offer.
   An engine of several processes has a receiver in each.
3. When all who are expected have asked, or some time after the first, the leader begins a round
   with those who are there. Every sender has a process group of its own with all receivers of the
   round (:mod:`axisrl.ops.broadcast.group`): shares travel at once, whatever the two counts are.
4. Groups are kept and used again while the same receivers come. Anybody who is new, is gone or saw
   a failure makes the leader form new ones.
5. Nobody waits for ever. Who dies before a round is not in it. Who dies in one breaks it: the
   others notice, or run out of time, forget their groups and ask again. An offer can be had until
   the next one, so that a receiver that comes late, or again, gets it in a round of its own.

NCCL carries the tensors where every member has a GPU of its own; otherwise gloo does, through the
machine's memory. What arrives is a copy of everything: a receiver needs that much memory until it
has loaded it.
"""
