"""The networks: from windows of clip features to slots, and from slots to predictions."""
