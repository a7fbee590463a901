"""The recipe: one YAML file with the sources, the models, what is kept and what is written.

Every room owns its own config model; `recipe.py` composes them and checks that they fit each other, `sections.py` has
the sections that belong to no room, and `files.py` reads recipes, fills in `extends` and applies `--set` overrides.
Errors about single keys are worded in `curate.records.validation_errors`.
"""

from curate.recipe.files import as_recipe, load_recipe, parse_recipe, parse_source
from curate.recipe.recipe import Recipe
from curate.recipe.sections import (
    BudgetConfig,
    ExecutorConfig,
    ReuseConfig,
    check_budget,
    judge_roles,
    left_out_of_cost,
)
