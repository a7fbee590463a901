"""Role adherence: does each assistant turn keep to the role it was given?"""
