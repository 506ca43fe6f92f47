from axisrl.runtime.seeds import derive_seed


def test_seeds_of_a_group_are_distinct_and_repeatable():
    seeds = [derive_seed(0, "train", 5, "task", member, 0) for member in range(1000)]
    assert len(set(seeds)) == 1000
    assert seeds == [derive_seed(0, "train", 5, "task", member, 0) for member in range(1000)]
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_parts_do_not_run_together():
    assert derive_seed(0, "a", "bc") != derive_seed(0, "ab", "c")
    assert derive_seed(1, 2) != derive_seed(12)
