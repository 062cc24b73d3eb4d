"""Labels and features as training and evaluation see them."""
