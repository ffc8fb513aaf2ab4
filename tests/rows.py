"""The 46 counterexamples of the repair model: what each is about, and the tests that hold the right outcome.

A row that needs a part which does not exist yet is pending, with that part's name. A test's name is `file::function`, below
tests/; a row's own tests are called test_row_NUMBER_... .
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Row(NamedTuple):
    """One counterexample: what its history is about, and where it is tested."""

    about: str
    tests: tuple[str, ...] = ()
    pending: str = ""  # the part that it needs


NEEDS: Final = ("network", "effects", "barriers", "memory")
CASES = "flows/test_counterexamples.py"
PROGRAMS = "flows/test_counterexamples_programs.py"
POLICIES = "flows/test_policies.py"
REAL = "flows/test_real_repairs.py::test_real_repairs"
JOBS = "flows/test_real_jobs.py::test_a_real_job"

ROWS: Final[dict[int, Row]] = {
    1: Row("a probe for an absent file", (f"{CASES}::test_row_1_a_probe_for_an_absent_file",)),
    2: Row("a listing", (f"{CASES}::test_row_2_a_listing",)),
    3: Row("a new path of a replay", (f"{CASES}::test_row_3_a_new_path_of_a_replay",)),
    4: Row(
        "the same bytes",
        (
            f"{CASES}::test_row_4_the_same_bytes",
            JOBS,
        ),
    ),
    5: Row("a blind overwrite", (f"{CASES}::test_row_5_a_blind_overwrite",)),
    6: Row("an append", (f"{CASES}::test_row_6_an_append",)),
    7: Row("chmod only", (f"{CASES}::test_row_7_chmod_only",)),
    8: Row("opened for writing, not written", (f"{CASES}::test_row_8_opened_for_writing_and_not_written",)),
    9: Row("the mode of a parent", (f"{CASES}::test_row_9_the_mode_of_a_parent_is_inherited",)),
    10: Row("a kept folder is not opaque", (f"{CASES}::test_row_10_a_kept_folder_is_not_opaque",)),
    11: Row("a folder removed and made again", (f"{CASES}::test_row_11_a_folder_removed_and_made_again",)),
    12: Row("removing what is not there any more", (f"{CASES}::test_row_12_removing_what_is_not_there_any_more",)),
    13: Row("writing into a folder never made", (f"{CASES}::test_row_13_writing_into_a_folder_that_was_never_made",)),
    14: Row("a file where a folder was", (f"{CASES}::test_row_14_a_file_where_a_folder_was",)),
    15: Row("a symlink retargeted", (f"{CASES}::test_row_15_a_symlink_retargeted",)),
    16: Row("moving a folder of a lower layer", (f"{CASES}::test_row_16_moving_a_folder_of_a_lower_layer",)),
    17: Row(
        "hard links, and layers that are folded",
        (
            "contract/test_folding.py::test_row_17_links_of_a_folded_layer_stay_apart_from_a_later_write",
            f"{PROGRAMS}::test_row_17_the_boundaries_of_hard_links",
        ),
    ),
    18: Row("a replay writes what a later action wrote", (f"{CASES}::test_row_18_a_replay_writes_what_a_later_action_wrote",)),
    19: Row("a replay sees nothing of later actions", (f"{CASES}::test_row_19_a_replay_sees_nothing_of_later_actions",)),
    20: Row("a variable that is exported", (f"{CASES}::test_row_20_a_variable_is_read_by_whoever_names_it",)),
    21: Row("only the output differs", (f"{CASES}::test_row_21_only_the_output_differs",)),
    22: Row("only the exit code differs", (f"{CASES}::test_row_22_only_the_exit_code_differs",)),
    23: Row(
        "a time or an id in the result",
        (
            f"{POLICIES}::test_row_23_a_result_that_differs_each_time",
            f"{POLICIES}::test_row_23_an_equivalence_cuts_it_off",
        ),
    ),
    24: Row(
        "stale bytecode",
        (
            f"{PROGRAMS}::test_row_24_bytecode_that_is_told_by_time_and_size",
            REAL,
        ),
    ),
    25: Row(
        "make compares times",
        (
            f"{PROGRAMS}::test_row_25_make_compares_times",
            REAL,
            "flows/test_repair_rules.py::test_a_changed_file_stays_before_what_was_written_after_it",
        ),
    ),
    26: Row(
        "git's stat cache",
        (
            f"{PROGRAMS}::test_row_26_the_stat_cache_of_git",
            REAL,
        ),
    ),
    27: Row("another answer of the network", pending="network"),
    28: Row("an e-mail sent once", pending="effects"),
    29: Row("a token consumed before the rollback", pending="effects"),
    30: Row("a daemon of an earlier action", (f"{PROGRAMS}::test_row_30_a_daemon_ends_with_its_action",)),
    31: Row("channels between actions", (f"{PROGRAMS}::test_row_31_nothing_passes_between_actions_but_the_state",)),
    32: Row("unusual ways to read and write", (f"{PROGRAMS}::test_row_32_less_usual_ways_to_read_and_write",)),
    33: Row("a database with two writers", (f"{POLICIES}::test_row_33_two_tables_of_one_file",)),
    34: Row("dirty, then restored", (f"{CASES}::test_row_34_dirty_then_restored",)),
    35: Row("a replay that fails midway", (f"{CASES}::test_row_35_a_replay_that_fails_midway",)),
    36: Row(
        "a second repair",
        (
            f"{CASES}::test_row_36_a_second_repair",
            JOBS,
        ),
    ),
    37: Row(
        "all attributes of a kept file",
        (
            "contract/test_folding.py::test_row_37_attributes_and_holes_survive_folding",
            f"{PROGRAMS}::test_row_37_all_of_a_file_in_a_layer_made_again",
        ),
    ),
    38: Row(
        "an action added during a repair",
        (
            f"{CASES}::test_row_38_an_action_added_between_plan_and_repair",
            f"{CASES}::test_row_38_a_head_that_moved_otherwise",
            f"{CASES}::test_row_38_an_action_added_during_a_repair",
            "flows/test_repair_rules.py::test_an_action_that_is_run_during_a_repair",
        ),
    ),
    39: Row(
        "older than the oldest repairable point",
        ("flows/test_budget.py::test_row_39_what_is_older_than_the_oldest_repairable_point_is_refused_clearly",),
    ),
    40: Row("a validator that flips", pending="barriers"),
    41: Row("a claim with two sources", pending="memory"),
    42: Row("an insert that changes a later query", pending="memory"),
    43: Row("overwriting keeps the mode", (f"{CASES}::test_row_43_overwriting_keeps_the_mode",)),
    44: Row("overwriting through a hard link", (f"{PROGRAMS}::test_row_44_overwriting_through_a_link_that_was_never_made",)),
    45: Row("a red barrier in the middle", pending="barriers"),
    46: Row("umask and folder handed on", (f"{CASES}::test_row_46_the_umask_and_the_folder_are_handed_on",)),
}
