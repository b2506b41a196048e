//! The executor: carries out a plan, and only a plan.
