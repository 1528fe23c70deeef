"""The parts of MoE-Adapters: experts, where they are attached, and the task selector that routes images."""
