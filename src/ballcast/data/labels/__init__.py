"""Labels of clips and of whole games: SoccerNet's and OSL JSON."""
