"""What MoE-Adapters is made of: experts, where they are attached, who goes through which router."""
